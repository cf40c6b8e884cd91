package store

import (
	"context"
)

// WriteStore is a Store with write access.
type WriteStore interface {
	Store
	// Create begins a new object. The object appears as a whole at its Commit, and replaces an existing one.
	// Missing folders are created.
	Create(ctx context.Context, name string) (Upload, error)
	// Remove removes an object. It fails with ErrNotExist if the object does not exist.
	Remove(ctx context.Context, name string) error
}

// Upload is an object being written. It is not safe for concurrent use. It ends with Commit or Abort. Abort has no
// effect after either, so it can be deferred.
//
// After a failed Write or Sync, the content of the device is unknown. Then Commit also fails.
type Upload interface {
	// Write appends p.
	Write(p []byte) (int, error)
	// Sync makes the written data durable, if the store can do so before Commit.
	Sync(ctx context.Context) error
	// Commit makes the data durable and makes the whole object visible.
	Commit(ctx context.Context) error
	// Abort discards the upload.
	Abort() error
}

// Resumer is a WriteStore whose unfinished uploads outlive the process.
type Resumer interface {
	// Resume continues the unfinished upload of a name, or begins one of size 0 if there is none. If the object
	// already exists, it becomes an upload again and is not visible until its next Commit. Resume fails with
	// ErrLocked while another process has the same upload open. So an upload that is never committed can serve as a
	// lock and as a journal.
	Resume(ctx context.Context, name string) (Partial, error)
}

// Partial is an Upload of a Resumer.
type Partial interface {
	Upload
	// Size returns the number of written bytes.
	Size() int64
	// ReadAt reads written data, like Object.ReadAt.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Truncate cuts the upload to size. Write continues from there.
	Truncate(size int64) error
	// Suspend makes the written data durable and leaves it for Resume.
	Suspend(ctx context.Context) error
}

// PartialSuffix is the suffix of unfinished uploads in listings, if a store lists them.
const PartialSuffix = ".partial"

// WriteFile writes an object with this content.
func WriteFile(ctx context.Context, s WriteStore, name string, data []byte) error {
	u, err := s.Create(ctx, name)
	if err != nil {
		return err
	}
	defer u.Abort()
	if _, err := u.Write(data); err != nil {
		return err
	}
	return u.Commit(ctx)
}
