"""The terminals that `%import common.X` means: those of Lark's own library, without lookbehinds."""

from __future__ import annotations

COMMON = {
    "DIGIT": '"0".."9"',
    "HEXDIGIT": '"a".."f" | "A".."F" | DIGIT',
    "INT": "DIGIT+",
    "SIGNED_INT": '["+" | "-"] INT',
    "DECIMAL": 'INT "." INT? | "." INT',
    "_EXP": '("e" | "E") SIGNED_INT',
    "FLOAT": "INT _EXP | DECIMAL _EXP?",
    "SIGNED_FLOAT": '["+" | "-"] FLOAT',
    "NUMBER": "FLOAT | INT",
    "SIGNED_NUMBER": '["+" | "-"] NUMBER',
    "ESCAPED_STRING": r'/"([^"\\\n]|\\.)*"/',
    "LCASE_LETTER": '"a".."z"',
    "UCASE_LETTER": '"A".."Z"',
    "LETTER": "UCASE_LETTER | LCASE_LETTER",
    "WORD": "LETTER+",
    "CNAME": '("_" | LETTER) ("_" | LETTER | DIGIT)*',
    "WS_INLINE": r"/[ \t]+/",
    "WS": r"/[ \t\f\r\n]+/",
    "CR": r"/\r/",
    "LF": r"/\n/",
    "NEWLINE": "(CR? LF)+",
    "SH_COMMENT": r"/#[^\n]*/",
    "CPP_COMMENT": r"/\/\/[^\n]*/",
    "C_COMMENT": r"/\/\*([^*]|\*+[^*\/])*\*+\//",
    "SQL_COMMENT": r"/--[^\n]*/",
}
