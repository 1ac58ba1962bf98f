# SPDX-License-Identifier: Apache-2.0
"""Runs an unchanged program in a process group that this file has made: start.py PROGRAM ARGUMENT ..."""

import runpy
import sys

import torch.distributed
from common import BACKEND

torch.distributed.init_process_group(BACKEND)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
