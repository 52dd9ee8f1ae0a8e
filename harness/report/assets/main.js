prozess.start();
