"""Elements as a document: XML allows no control characters, which a file's name may contain."""

import re
from xml.etree.ElementTree import Element, ElementTree, indent

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""References: Extensible Markup Language (XML) 1.0, production 2 (Char)."""


def document(root: Element) -> "ElementTree[Element]":
    """Return the document of a root, on indented lines, without characters XML forbids."""
    for element in root.iter():
        for name, text in element.attrib.items():
            element.set(name, _ILLEGAL.sub("", text))
    indent(root)
    return ElementTree(root)
