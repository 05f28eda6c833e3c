import { Redlock } from "redlock-rs";

export async function POST() {
  const redlock = new Redlock([process.env.NODE_URL]);
  return await redlock.lock("stranger").using(async (_signal, { fence }) => new Response(String(fence)));
}
