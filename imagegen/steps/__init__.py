"""Steps: folders of content, found by name and evaluated to resources."""
