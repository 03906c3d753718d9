"""One module for each verb, imported when its verb runs."""
