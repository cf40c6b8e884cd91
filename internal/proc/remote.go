package proc

import "strings"

// The values of RemoteFiles.
const (
	RemoteServer = "server"
	RemoteBucket = "bucket"
)

// RemoteFiles returns the location of the files of a file system type (Mount.Type): RemoteServer, RemoteBucket, or ""
// for local files.
func RemoteFiles(kind string) string {
	switch {
	case strings.HasPrefix(kind, "nfs"), kind == "cifs", kind == "smb3", kind == "9p", kind == "ceph", kind == "lustre", kind == "beegfs", kind == "glusterfs",
		kind == "fuse.glusterfs", kind == "gpfs", kind == "afs":
		return RemoteServer
	case strings.HasPrefix(kind, "fuse.") && (strings.Contains(kind, "s3") || strings.Contains(kind, "gcs") || strings.Contains(kind, "blob") || strings.Contains(kind, "goofys")):
		return RemoteBucket
	}
	return ""
}
