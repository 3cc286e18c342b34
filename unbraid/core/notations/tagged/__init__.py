"""Arguments between tags.

| module | what it reads |
| --- | --- |
| `arguments` | `<parameter=city>Paris</parameter>`: the tags and keys |
| `xml` | the same, with entities and CDATA sections (`xml_text`) |
| `elements` | `<city>Paris</city>`, nested |
| `values` | what stands between two tags |
| `nested` | an array or an object there |
| `wrapped` | a value that turns out to be all of the arguments |
"""
