-- Ends the script of a waiter that gives up, if the lock is free or one owner has it alone: readers were not kept off for it.
-- KEYS  lock
-- Returns 0 then.
-- After TYPE, which is next, a server remembers the reader until the key changes, and the key of a free lock may never
-- change.
if type(redis.pcall('GETEX', KEYS[1])) ~= 'table' then return 0 end
