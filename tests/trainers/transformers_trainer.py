# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, in a program that says nothing about the process group: on CPUs it gets gloo's."""

import tempfile

import common
import transformers

with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, max_steps=5, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no", seed=3
    )
    trainer = transformers.Trainer(model=common.language_model(), args=arguments, train_dataset=common.Words())
    trainer.train()
common.report(trainer.model, steps=5)
