package transform

// augmentSpecs lists the augmentations: operations on pixels.
func augmentSpecs() []Spec { return nil }
