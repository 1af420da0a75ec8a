// Package queryclient is the commands' client of the query API: the flags that say where it
// is, requests, printing of responses, and shell completion from what it serves.
package queryclient
