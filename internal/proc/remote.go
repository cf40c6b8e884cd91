package proc

import "strings"

// The values of RemoteFiles.
const (
	RemoteServer = "server"
	RemoteBucket = "bucket"
)

// RemoteFiles says of the kind of a file system (Mount.Type) where its files are:
// RemoteServer, RemoteBucket, or "" for here.
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
