"""Signs the stand-ins of artifacts with Authenticode, as a vendor would. Shares no code with the verifier."""
