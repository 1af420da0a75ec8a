// Package zstdbody compresses what an agent answers with zstd (RFC 8878), for a link that is slow or paid for by the byte.
//
// A response is a sequence of frames. All events of a watch that are in one frame share its window, so that an object
// that was sent before, or is like others, costs its difference. What has been read of the API server is sent at once,
// as a block. A watch that has been quiet for a while ends its frame, and has no encoder until its next event.
//
// # Encoders
//
// An encoder is 0.6 MB, and a [Pool] has only a few, whatever the number of watches: who has one keeps it while it is
// busier than those that have none, or until it is quiet. Others make a frame of each event with an encoder that all of
// them share, one at a time; who would have to wait for it sends blocks that are not compressed. Nobody waits for an
// encoder, and nobody has one while it writes: what is written was compressed before, and a watch that federator does not
// read holds a buffer and no more.
//
// # Bookmarks
//
// A quiet watch has little but bookmarks, about one a minute, of which only the newest matters, and only when the watch
// is resumed. A bookmark that follows events is passed at once, as is the one that ends initial events. Of those that
// follow one another the last is passed at times that all watches share, so that they go together, and when the watch
// ends. None is passed after an event that it came before.
package zstdbody
