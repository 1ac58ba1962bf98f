# SPDX-License-Identifier: Apache-2.0
"""What tests/torch_cuda/kernels.py is for the fake CUDA, on a GPU: PyTorch's own kernels stay."""

import torch

PLAIN = "cuda"  # a GPU's sums are not those of a CPU


def install():
    """Does nothing."""


def alias(tensor):
    """Returns the tensor."""
    return tensor


def delay():
    """Lets what is queued on the current stream come later, by some milliseconds."""
    torch.cuda._sleep(10_000_000)


def check():
    """Waits for all devices. Raises the error of a kernel."""
    for i in range(torch.cuda.device_count()):
        torch.cuda.synchronize(i)
