"""The engine checks signatures before a file is used, and says of each fault what the model of it says.

docs/guest.md has the check; the rehearsal's machine runs a model of it, and no test here runs the script itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.certificates import Certificate, Certificates, ROOT
from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.reader import Script
from tests.powershell.repository import script
from tests.powershell.standing import in_order, only_where

if TYPE_CHECKING:
    from collections.abc import Iterator
