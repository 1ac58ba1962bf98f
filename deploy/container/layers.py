#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""layers.py ARCHIVE [FOLDER]: prints the files of the image in an OCI archive, and its size. With FOLDER it unpacks the
image there instead."""

import json
import sys
import tarfile


def deletes(member):
    """Whether the entry of a layer only says that a file of a layer below is gone."""
    return "/.wh." in f"/{member.name}"


class Image:
    """An image in an archive. `config` is what it says about its processes."""

    def __init__(self, path):
        self.archive = tarfile.open(path)
        (manifest,) = self.read("index.json")["manifests"]
        manifest = self.blob(manifest)
        self.config = self.blob(manifest["config"])["config"]
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
    image = Image(sys.argv[1])
    if len(sys.argv) > 2:
        image.unpack(sys.argv[2])
        return
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
