"""What buttons ask: fields by the schemas that workers advertise."""

from __future__ import annotations

import pytest

from longshore.gateway.pages.forms import Dialog, Field, button, fields_of
from longshore.model.worker import Parameter


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ('{"type": "string"}', "text"),
        ('{"type": "integer"}', "integer"),
        ('{"type": "number"}', "number"),
        ('{"type": "boolean"}', "boolean"),
        ('{"type": "array", "items": {}}', "json"),
        ('{"anyOf": [{"type": "string"}, {"type": "null"}]}', "json"),
        ('{"enum": ["port", "starboard"]}', "choice"),
        ('{"enum": [1, 2]}', "json"),
        ("", "json"),
        ("no JSON", "json"),
        ("[]", "json"),
    ],
)
def test_a_field_is_of_the_kind_that_its_schema_names(schema: str, kind: str) -> None:
    [field] = fields_of([Parameter("side", False, "Side", schema)])
    assert (field.name, field.kind, field.required, field.hint) == ("side", kind, False, "Side")
    assert field.choices == (("port", "starboard") if kind == "choice" else ())


def test_a_button_carries_what_it_asks_as_data() -> None:
    fields = [Field(name="note", label='a "note"')]
    made = button("Pause", "POST", "x/pause", Dialog(title="Pause <x>", fields=fields))
    assert 'data-path="x/pause" data-title="Pause &lt;x&gt;"' in made
    assert "&quot;label&quot;:&quot;a \\&quot;note\\&quot;&quot;" in made
    assert "data-plan" not in made
