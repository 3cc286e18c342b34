"""Recordings and speech: `/v1/audio/transcriptions`, `/v1/audio/translations`, `/v1/audio/speech`."""
