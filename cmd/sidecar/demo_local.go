package main

import "io"

// localConfig says what startLocal starts.
type localConfig struct {
	Engine  string    // URL; "" for a simulated engine in this process
	Catalog []string  // as serve's --catalog
	Log     io.Writer // of the sidecar
}
