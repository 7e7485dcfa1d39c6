"""Jobs on Kubernetes with Kubeflow's TrainJobs."""
