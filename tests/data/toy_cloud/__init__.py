"""A provider in one folder, which the tests register beside the shipped ones. Its builder is Packer's own `null`."""
