package transform

// batchSpecs lists the operations on whole batches.
func batchSpecs() []BatchSpec { return nil }
