// Package signature verifies the signatures of commits and tags: SSH's, in OpenSSH's
// format, and OpenPGP's.
//
// A key counts when it is valid now and, for SSH's valid-after, was so when the
// commit says it was made. Now, because whoever has an expired key can write any
// time into a commit. Certificates and SHA-1 are not taken.
package signature
