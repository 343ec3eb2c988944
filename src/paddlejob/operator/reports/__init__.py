"""Takes the reports of the recorders inside pods: who sent one, whether it may, and when the next is due."""
