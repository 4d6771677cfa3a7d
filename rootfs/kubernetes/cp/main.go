// Cp copies one file: `cp -f SOURCE DESTINATION`. An init container places a configuration file with it, and needs
// no shell.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) > 0 && arguments[0] == "-f" {
		arguments = arguments[1:]
	}
	if len(arguments) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cp [-f] SOURCE DESTINATION")
		os.Exit(2)
	}
	if err := copyFile(arguments[0], arguments[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cp:", err)
		os.Exit(1)
	}
}

// copyFile replaces the destination in one step, so that no reader finds half a file.
func copyFile(source, destination string) error {
	if info, err := os.Stat(destination); err == nil && info.IsDir() {
		destination = filepath.Join(destination, filepath.Base(source))
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", source)
	}
	to, err := os.CreateTemp(filepath.Dir(destination), ".cp-*")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	if err := to.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.Rename(to.Name(), destination)
}
