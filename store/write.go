package store

import (
	"context"
)

// WriteStore is a Store that can be written to.
type WriteStore interface {
	Store
	// Create begins a new object. It appears at its Commit, as a whole, in the
	// place of one that is there already. Folders are made as they are needed.
	Create(ctx context.Context, name string) (Upload, error)
	// Remove removes an object; ErrNotExist when there is none.
	Remove(ctx context.Context, name string) error
}

// Upload is an object that is being written, by one goroutine. It ends with
// Commit or Abort; calling Abort after either does nothing, so it can be deferred.
//
// After a failure of Write or Sync it cannot be known what is on the device:
// Commit then fails, too.
type Upload interface {
	// Write appends p.
	Write(p []byte) (int, error)
	// Sync makes what was written durable, where the store can before Commit.
	Sync(ctx context.Context) error
	// Commit makes everything durable and puts the object in place as a whole.
	Commit(ctx context.Context) error
	// Abort ends the upload; nothing of it stays.
	Abort() error
}

// Resumer is a WriteStore whose unfinished uploads outlive the process.
type Resumer interface {
	// Resume goes on with the unfinished upload of a name, begins one where
	// there is none (its size is then 0), or takes an object that is in place
	// back: until its Commit it is not there. It fails with ErrLocked while
	// somebody else has the same upload open, so that an upload which is never
	// committed serves as a lock and as a journal.
	Resume(ctx context.Context, name string) (Partial, error)
}

// Partial is an Upload of a Resumer.
type Partial interface {
	Upload
	// Size is how many bytes there are.
	Size() int64
	// ReadAt reads what was written, as Object.ReadAt does.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Truncate cuts it; Write goes on from there.
	Truncate(size int64) error
	// Suspend makes what was written durable and leaves it for Resume.
	Suspend(ctx context.Context) error
}

// PartialSuffix is behind the name under which List shows an unfinished upload,
// where a store shows them.
const PartialSuffix = ".partial"

// WriteFile writes an object of the given content.
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
