"""Registers of a design by name.

>>> import fpga_rdma
>>> card = fpga_rdma.open("mock")
>>> regs = card.parse_map('''
... schema_version: 1
... name: copier
... enums: [{name: Mode, variants: [{name: simple, value: 0}, {name: scatter_gather, value: 1}]}]
... blocks:
...   - name: copier
...     offset: 0x1000
...     registers:
...       - {name: control, offset: 0, fields: [{name: mode, bits: 3, enum: Mode}, {name: threshold, bits: '23:16'}]}
...       - {name: source, offset: 0x18}
... ''')
>>> regs.copier.source = 0x1000
>>> int(regs.copier.source)
4096
>>> regs.copier.control.mode = "scatter_gather"
>>> regs.copier.control.mode.label
'scatter_gather'
>>> dir(regs.copier)
['control', 'source']
>>> card.close()

An attribute is a place, which is read when its value is needed (``int(place)``, ``place == 3``, ``place.value``, ``print(place)``): tab
completion reads nothing. Names that are attributes of places already, such as ``value``, are reached by ``place["value"]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import NoRegisterError

if TYPE_CHECKING:
    from ._native import Map
    from .info import RegisterInfo

__all__ = ["Place", "Registers"]


class Registers:
    """Block, array or register whose parts are attributes; elements of arrays have numbers: ``regs.lane[1].gain``."""

    __slots__ = ("_map", "_name")
    _map: Map
    _name: str

    def __init__(self, map: Map, name: str = "") -> None:
        object.__setattr__(self, "_map", map)
        object.__setattr__(self, "_name", name)

    def _child(self, key: str | int) -> str:
        if isinstance(key, int):
            return f"{self._name}[{key}]"
        return f"{self._name}.{key}" if self._name else key

    def __getitem__(self, key: str | int) -> Any:
        name = self._child(key)
        return Registers(self._map, name) if self._map.kind(name) == "group" else Place(self._map, name)

    def __setitem__(self, key: str | int, value: int | str | Place) -> None:
        name = self._child(key)
        if self._map.kind(name) == "group":
            raise NoRegisterError(f"{self._map.card}: {name} is a group of registers, not a register", card=self._map.card)
        self._map.write(name, value)

    def __getattr__(self, name: str) -> Any:
        # Tools ask every object for names of their own.
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: int | str | Place) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return [child for child in self._map.children(self._name) if not child.startswith("[")]

    def __len__(self) -> int:
        return len(self._map.children(self._name))

    def __repr__(self) -> str:
        return f"<Registers {self._name or self._map.name}: {', '.join(self._map.children(self._name))}>"


class Place(Registers):
    """Register or field."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """Reads it. A register whose read has side effects is refused: see :meth:`take`."""
        return self._map.read(self._name)

    @property
    def label(self) -> str | None:
        """Reads it, and returns the name of its value; ``None`` if the value has no name."""
        return self._map.label(self._name, self.value)

    @property
    def info(self) -> RegisterInfo:
        """Description of the map. Reads nothing."""
        return self._map.describe(self._name)

    def take(self) -> int:
        """Reads a register whose read has side effects: its bits are returned once."""
        return self._map.take(self._name)

    def set(self, value: int | str) -> None:
        """Writes a number, or the name of a value."""
        self._map.write(self._name, value)

    def __setattr__(self, name: str, value: int | str | Place) -> None:
        if name == "value":
            self._map.write(self._name, value)
        else:
            super().__setattr__(name, value)

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __bool__(self) -> bool:
        return self.value != 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.label == other
        return self.value == int(other) if isinstance(other, int | Place) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: int) -> bool:
        return self.value < other

    def __le__(self, other: int) -> bool:
        return self.value <= other

    def __gt__(self, other: int) -> bool:
        return self.value > other

    def __ge__(self, other: int) -> bool:
        return self.value >= other

    def __add__(self, other: int) -> int:
        return self.value + other

    def __sub__(self, other: int) -> int:
        return self.value - other

    def __and__(self, other: int) -> int:
        return self.value & other

    def __or__(self, other: int) -> int:
        return self.value | other

    def __xor__(self, other: int) -> int:
        return self.value ^ other

    def __lshift__(self, other: int) -> int:
        return self.value << other

    def __rshift__(self, other: int) -> int:
        return self.value >> other

    def __repr__(self) -> str:
        try:
            value = self.value
        except Exception as error:
            return f"<{self._name}: {str(error).splitlines()[0]}>"
        label = self._map.label(self._name, value)
        return f"<{self._name} = {value:#x}{f' ({label})' if label else ''}>"
