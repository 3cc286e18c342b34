"""unbraid inside of other engines: drop-ins for SGLang and vLLM."""
