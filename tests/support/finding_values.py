"""What a finding says, as a value that can be compared."""


def said(finding):
    """Everything but how it was found."""
    result = finding.result
    return (
        finding.anomaly,
        finding.partition,
        result.count,
        result.judged,
        result.incomplete,
        result.witnesses.tobytes(),
    )
