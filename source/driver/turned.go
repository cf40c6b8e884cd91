package driver

// Turned is implemented by sources of annotated images whose annotations may not say whether they belong to an image as it
// is stored or as its EXIF orientation turns it.
type Turned interface {
	// ApplyOrientation is called before the first read if images are turned.
	ApplyOrientation()
}

// ApplyOrientation tells a source that images are turned, if the source is Turned.
func ApplyOrientation(s Source) {
	if x, ok := As[Turned](s); ok {
		x.ApplyOrientation()
	}
}
