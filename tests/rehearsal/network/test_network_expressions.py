"""Template expressions: those that are sent mean what Azure says, and no others mean anything."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.expressions import Evaluator
from imagegen.rehearsal.clouds.azure.resources import GroupId

_GROUP = GroupId("sub", "rg")
_ID = "/subscriptions/sub/resourceGroups/rg"


def _value(raw: Any) -> Any:  # noqa: ANN401 - any JSON value is an expression
    evaluator = Evaluator(
        parameters={"vmName": "vm1", "empty": "", "list": [1]},
        variables={
            "location": "[resourceGroup().location]",
            "vnet": "[resourceId(variables('rg'), 'Microsoft.Network/virtualNetworks', 'net')]",
            "rg": "[resourceGroup().name]",
            "round": "[variables('round')]",
        },
        group=_GROUP,
        location="westeurope",
    )
    return evaluator.evaluate(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("plain", "plain"),
        ("[[not one]", "[not one]"),
        ("[parameters('vmName')]", "vm1"),
        ("[PARAMETERS('VMNAME')]", "vm1"),
        ("[variables('location')]", "westeurope"),
        ("[concat(parameters('vmName'), '/it''s', 4)]", "vm1/it's4"),
        ("[concat(parameters('list'), parameters('list'))]", [1, 1]),
        ("[format('{1}-{0}', 'a', 'b')]", "b-a"),
        ("[not(empty(parameters('empty')))]", False),
        ("[variables('vnet')]", f"{_ID}/providers/Microsoft.Network/virtualNetworks/net"),
        (
            "[resourceId('other', 'g2', 'Microsoft.KeyVault/vaults/secrets', 'kv', 's')]",
            "/subscriptions/other/resourceGroups/g2/providers/Microsoft.KeyVault/vaults/kv/secrets/s",
        ),
        (
            "[resourceId('Microsoft.Compute/virtualMachines/', 'v')]",
            f"{_ID}/providers/Microsoft.Compute/virtualMachines/v",
        ),
        ("[subscription().subscriptionId]", "sub"),
        ({"a": ["[parameters('vmName')]", 1, None, True]}, {"a": ["vm1", 1, None, True]}),
    ],
)
def test_an_expression_has_a_value(raw: object, value: object) -> None:
    assert _value(raw) == value


@pytest.mark.parametrize(
    ("raw", "message", "fault"),
    [
        ("[parameters('other')]", "the template parameter 'other' is not found", ""),
        ("[variables('round')]", "expressions refer to each other", ""),
        ("[uniqueString('a')]", "'uniqueString' is not valid", "unexpected template function uniqueString"),
        ("[concat('a']", "the arguments of 'concat' cannot be read", ""),
        ("[concat('a' 'b')]", "the arguments of 'concat' cannot be read", ""),
        ("[concat('a') 'b']", "unexpected text", ""),
        ("[resourceGroup().size]", "the property 'size' does not exist", ""),
        ("[resourceId('nothing')]", "has no resource type", ""),
        ("[resourceId('A.B/cs/ds', 'one')]", "does not fit the type", ""),
        ("[format('{1}', 'a')]", "fewer values than placeholders", ""),
        ("[not('a', 'b')]", "expected 1 argument, found 2", ""),
        ("[concat]", "is not called", ""),
    ],
)
def test_what_has_none_is_refused(raw: str, message: str, fault: str) -> None:
    with pytest.raises(ArmError) as caught:
        _value(raw)
    assert message in caught.value.message
    assert (caught.value.code, caught.value.fault) == ("InvalidTemplate", fault)
