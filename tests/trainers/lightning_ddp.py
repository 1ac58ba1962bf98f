# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer with DDPStrategy, which makes the process group."""

import common
import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = common.network()

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


net = Net()
strategy = DDPStrategy(process_group_backend=common.BACKEND)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(net, torch.utils.data.DataLoader(common.data(), batch_size=8))
common.report(net, steps=8)
