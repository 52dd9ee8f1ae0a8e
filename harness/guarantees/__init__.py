"""This module says what a configuration promises, and whether what happened broke it. Stage judge: findings and
evidence in, verdict out.

`table` is the authority; `facts` names what its rules are made of, `evidence` says what happened, and `verdict` applies one
to the other. Pure values.
"""
