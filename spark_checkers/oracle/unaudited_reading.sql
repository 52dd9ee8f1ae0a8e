-- The text of readers that is another one where nobody audited: what was jumped over was received, or acknowledged.

--- anomaly skipped
{skipped(true)}
