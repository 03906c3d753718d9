"""The steps: folders of content, found by name and evaluated into resources."""
