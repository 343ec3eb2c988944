"""PaddleJobs of Kubeflow (`kubeflow.org/v1`), and what they are here."""
