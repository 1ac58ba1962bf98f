#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""layers.py ARCHIVE [FOLDER [ARCHITECTURE]]: prints the files of each image in an OCI archive, and its size. With
FOLDER it unpacks one image there instead: that for ARCHITECTURE, such as arm64, if there are several."""

import json
import sys
import tarfile


def deletes(member):
    """Whether the entry of a layer only says that a file of a layer below is gone."""
    return "/.wh." in f"/{member.name}"


class Image:
    """An image in an archive. `config` is what it says about its processes, `platform` names its system and processor.
    If the archive has images for several kinds of processor, `architectures` are these, and this image is for one of
    them."""

    def __init__(self, path, architecture=None):
        self.archive = tarfile.open(path)
        (manifest,) = self.read("index.json")["manifests"]
        manifest = self.blob(manifest)
        several = {m["platform"]["architecture"]: m for m in manifest.get("manifests", [])}
        self.architectures = sorted(several)
        if several:
            manifest = self.blob(several[architecture or self.architectures[0]])
        about = self.blob(manifest["config"])
        self.config, self.platform = about["config"], (about["os"], about["architecture"])
        self.sizes = [layer["size"] for layer in manifest["layers"]]  # in bytes, compressed
        self.layers = [self.name(layer) for layer in manifest["layers"]]

    def read(self, name):
        return json.load(self.archive.extractfile(name))

    @staticmethod
    def name(descriptor):
        return "blobs/" + descriptor["digest"].replace(":", "/")

    def blob(self, descriptor):
        return self.read(self.name(descriptor))

    def layer(self, i):
        return tarfile.open(fileobj=self.archive.extractfile(self.layers[i]))

    def unpack(self, folder):
        """Unpacks all layers but what they delete."""
        for i in range(len(self.layers)):
            with self.layer(i) as layer:
                layer.extractall(folder, [m for m in layer if not deletes(m)], numeric_owner=True)


def main():
    if len(sys.argv) > 2:
        Image(sys.argv[1], *sys.argv[3:]).unpack(sys.argv[2])
        return
    for architecture in Image(sys.argv[1]).architectures or [None]:
        show(Image(sys.argv[1], architecture), architecture)


def show(image, architecture):
    if architecture:
        print(f"{architecture}:")
    total = 0
    for i in range(len(image.layers)):
        with image.layer(i) as layer:
            for member in layer:
                if not member.isdir() and not deletes(member):
                    target = f" -> {member.linkname}" if member.linkname else ""
                    print(f"{member.size:10} /{member.name.removeprefix('./')}{target}")
                    total += member.size
    print(f"{total / 1e6:.1f} MB, compressed {sum(image.sizes) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
