# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer under torchrun's restarts: rank 1 kills itself in each of the first KILLS attempts, after one
step more than in the attempt before. A checkpoint follows each step."""

import os
import signal

import common
import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

FOLDER = os.environ["CHECKPOINT"]
KILLS = int(os.environ["KILLS"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


class Kill(transformers.TrainerCallback):
    def on_save(self, arguments, state, control, **_):
        torch.distributed.barrier()  # all ranks have written their part
        if torch.distributed.get_rank() == 1 and ATTEMPT < KILLS and state.global_step == ATTEMPT + 1:
            os.kill(os.getpid(), signal.SIGKILL)


common.start()
os.makedirs(FOLDER, exist_ok=True)
last = get_last_checkpoint(FOLDER)
torch.distributed.barrier()  # all ranks have read the folder
arguments = transformers.TrainingArguments(
    FOLDER, max_steps=22, per_device_train_batch_size=4, use_cpu=True,
    report_to=[], save_strategy="steps", save_steps=1, save_total_limit=2, seed=3,
)  # fmt: skip
trainer = transformers.Trainer(
    model=common.language_model(), args=arguments, train_dataset=common.Words(), callbacks=[Kill()]
)
trainer.train(resume_from_checkpoint=last)
common.report(trainer.model, steps=1)
torch.distributed.destroy_process_group()
