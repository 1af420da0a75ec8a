// Package config is federator's configuration: the types and defaults of the file, strict
// reading that names the line of each mistake, flags that override it, and validation.
//
// Load returns what is valid; keys that depend on others are filled in by then. What only
// serve needs of the hub or of the members is checked where it is used.
package config
