"""Boots the model machine from the built image, as a cloud would start a node from it, and says whether a node came up.

The flow: `Machine.copy` makes a machine from the captured disk -> Windows Setup (specialise, oobe, SetupComplete) ->
services by their start type, among them cloudbase-init: its real code in a child process, bound to the model machine ->
its plugins read the cloud's metadata and run the user data, whose scripts and join are taken as run -> a second boot ->
the checks of `imagegen.boot` read the machine through `view.py`.
"""
