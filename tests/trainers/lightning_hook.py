# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer, which starts the second rank itself, with the communication hook. The State is made before."""

import common
import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

more = {}
if common.BACKEND == "reduction":
    import reduction.torch

    more = {"ddp_comm_state": reduction.torch.State(), "ddp_comm_hook": reduction.torch.allreduce_hook}


class Strategy(DDPStrategy):
    """Lightning registers hooks on GPUs only."""

    def configure_ddp(self):
        super().configure_ddp()
        if more:
            self.model.register_comm_hook(self._ddp_comm_state, self._ddp_comm_hook)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = common.network()

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


net = Net()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=Strategy(process_group_backend="gloo", **more), max_epochs=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(net, torch.utils.data.DataLoader(common.data(), batch_size=8))
common.report(net, steps=8)
