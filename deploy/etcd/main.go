// The etcd of the image for clusters: its makers' server, without their command line for other things.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
