package queryclient

import (
	"time"
)

// completion asks the query API what there is; a shell that waits for it is
// worse than one that completes nothing.
const completionTimeout = 3 * time.Second
