# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer, in a process group that the program has made."""

import tempfile

import common
import datasets
import tokenizers
import transformers
import trl

common.start()
words = {f"w{i}": i for i in range(61)}
words.update({"<pad>": 61, "<eos>": 62, "<unk>": 63})
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>")),
    pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
)  # fmt: skip
rows = datasets.Dataset.from_dict({"input_ids": common.Words().ids.clamp(max=60).tolist()})
with tempfile.TemporaryDirectory() as folder:
    arguments = trl.SFTConfig(
        folder, max_steps=4, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no", seed=3,
        bf16=False, gradient_checkpointing=False, max_length=16,
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        model=common.language_model(), args=arguments, train_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
common.report(trainer.model, steps=4)
