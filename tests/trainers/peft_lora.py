# SPDX-License-Identifier: Apache-2.0
"""PEFT's LoRA in Hugging Face's Trainer, in a process group that the program has made."""

import tempfile

import common
import peft
import torch
import transformers

common.start()
model = common.language_model()
torch.manual_seed(12)
model = peft.get_peft_model(
    model, peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
)
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, max_steps=5, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no", seed=3,
        learning_rate=0.01,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=common.Words())
    trainer.train()
common.report(trainer.model, steps=5)
