"""This folder starts, commands and follows the client processes of a trial, from their launch to the audit at the end."""
