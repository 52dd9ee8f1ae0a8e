"""Transactional producers are here, with the fencer that ends every transaction before the audit."""
