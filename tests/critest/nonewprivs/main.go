// The program of the image nonewprivs: a setuid program that tells whose rights it got.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Printf("Effective uid: %d\n", os.Geteuid())
}
