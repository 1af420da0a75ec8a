// Package mask describes the parts of an object that a policy can read.
package mask

// Mask is a set of paths into a JSON value. A nil Mask reads nothing below;
// All reads everything below. Elem stands for every element of an array and
// every value of an object that Fields does not name.
type Mask struct {
	All    bool
	Fields map[string]*Mask
	Elem   *Mask
}
