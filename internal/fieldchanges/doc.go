// Package fieldchanges says what a change of an object changes, field by field. Values are decoded JSON, whose
// numbers are json.Number. None of its functions changes its arguments.
//
// It has a JSON patch of its own. The operations of an Action are applied to a part of the object, what its inverse
// has, each of them where it fits. github.com/evanphx/json-patch/v5 applies a patch as a whole or not at all; given the
// operations one by one, with the options that make it lenient, it does otherwise than RFC 6902 in these cases, which
// TestLibrary_DoesOtherwise holds:
//
//   - A test of a list with null where another value is expected panics.
//   - A test for null of what there is not succeeds.
//   - The path "" is a field with that name, not the whole object.
//   - A position may begin with zeros.
//   - EnsurePathExistsOnAdd makes the objects above a field, which then seem to have changed.
//
// It also encodes the whole object after each operation. In all other cases both do the same.
package fieldchanges
